// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {BurnIntent} from "../../src/gateway/BurnIntent.sol";
import {InstantWithdrawals, IntentField} from "../../src/gateway/InstantWithdrawals.sol";
import {Roles} from "../../src/gateway/Roles.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {Pausable} from "@openzeppelin/contracts/utils/Pausable.sol";
import {GatewayTest} from "../support/GatewayTest.sol";
import {Signer} from "../support/Signer.sol";
import {vm} from "../support/Vm.sol";

contract InstantWithdrawTest is GatewayTest {
    using Signer for BurnIntent;

    address private wallet = _named("alice's own wallet");

    function setUp() public override {
        super.setUp();
        _deposit(alice, 100 * USDC);
    }

    function test_theRecipientIsPaidAtOnceAndInFull(uint256 value, bytes32 salt) public {
        value = _bound(value, 1, 100 * USDC);
        BurnIntent memory intent = _intent(alice.addr, wallet, value, salt);

        vm.expectEmit(address(gateway));
        emit InstantWithdrawals.InstantWithdrawal(
            USDC_ADDRESS, alice.addr, Signer.transferSpecHash(intent.spec), wallet, value, value, 0
        );
        _instantWithdraw(intent, alice.key);
        vm.assertEq(usdc.balanceOf(wallet), value);
        vm.assertEq(_total(alice.addr), 100 * USDC - value);
        vm.assertEq(gateway.isTransferSpecUsed(Signer.transferSpecHash(intent.spec)), true);
    }

    function test_whatIsWithdrawingCanLeaveAtOnceToo() public {
        _initiateWithdrawal(alice, 70 * USDC);
        BurnIntent memory intent = _intent(alice.addr, wallet, 90 * USDC, "salt");
        vm.expectEmit(address(gateway));
        emit InstantWithdrawals.InstantWithdrawal(
            USDC_ADDRESS,
            alice.addr,
            Signer.transferSpecHash(intent.spec),
            wallet,
            90 * USDC,
            30 * USDC,
            60 * USDC
        );
        _instantWithdraw(intent, alice.key);
        vm.assertEq(_available(alice.addr), 0);
        vm.assertEq(_withdrawing(alice.addr), 10 * USDC);
    }

    function test_theSameTransferWithAnotherSaltIsAnother() public {
        _instantWithdraw(_intent(alice.addr, wallet, USDC, "first"), alice.key);
        _instantWithdraw(_intent(alice.addr, wallet, USDC, "second"), alice.key);
        vm.assertEq(usdc.balanceOf(wallet), 2 * USDC);
    }

    function test_anIntentIsGoodUpToItsLastBlock() public {
        BurnIntent memory intent = _intent(alice.addr, wallet, USDC, "salt");
        vm.roll(intent.maxBlockHeight + 1);
        _expectRefusal(
            intent,
            alice.key,
            abi.encodeWithSelector(
                InstantWithdrawals.IntentExpired.selector, intent.maxBlockHeight, intent.maxBlockHeight + 1
            )
        );
        vm.roll(intent.maxBlockHeight);
        _instantWithdraw(intent, alice.key);
        vm.assertEq(usdc.balanceOf(wallet), USDC);
    }

    function test_nothingAndTooMuchAreRefused(uint256 value) public {
        _expectRefusal(
            _intent(alice.addr, wallet, 0, "salt"),
            alice.key,
            abi.encodeWithSelector(InstantWithdrawals.IntentValueZero.selector)
        );
        value = _bound(value, 100 * USDC + 1, type(uint256).max);
        _expectRefusal(
            _intent(alice.addr, wallet, value, "salt"),
            alice.key,
            abi.encodeWithSelector(InstantWithdrawals.IntentExceedsBalance.selector, value, 100 * USDC)
        );
    }

    function test_aRecipientThatIsNobodyIsRefused(bytes32 recipient) public {
        vm.assume(uint256(recipient) >> 160 != 0);
        BurnIntent memory intent = _intent(alice.addr, wallet, USDC, "salt");
        bytes32[3] memory nobodies = [bytes32(0), _padded(address(gateway)), recipient];
        for (uint256 i = 0; i < nobodies.length; ++i) {
            intent.spec.destinationRecipient = nobodies[i];
            _expectRefusal(
                intent,
                alice.key,
                abi.encodeWithSelector(InstantWithdrawals.IntentRecipientInvalid.selector, nobodies[i])
            );
        }
    }

    // Chains and contracts other than this one are in replay.t.sol.
    function test_everyFieldMustSayWhatTheGatewayDoes() public {
        BurnIntent memory intent = _intent(alice.addr, wallet, USDC, "salt");
        intent.spec.version = 2;
        _expectMismatch(intent, IntentField.Version, bytes32(uint256(2)), bytes32(uint256(1)));

        intent = _intent(alice.addr, wallet, USDC, "salt");
        intent.spec.destinationContract = _padded(bob.addr);
        _expectMismatch(intent, IntentField.DestinationContract, _padded(bob.addr), _padded(address(gateway)));

        intent = _intent(alice.addr, wallet, USDC, "salt");
        intent.spec.sourceToken = _padded(bob.addr);
        _expectMismatch(intent, IntentField.SourceToken, _padded(bob.addr), _padded(USDC_ADDRESS));

        intent = _intent(alice.addr, wallet, USDC, "salt");
        intent.spec.destinationToken = _padded(bob.addr);
        _expectMismatch(intent, IntentField.DestinationToken, _padded(bob.addr), _padded(USDC_ADDRESS));

        intent = _intent(alice.addr, wallet, USDC, "salt");
        intent.spec.destinationCaller = _padded(bob.addr);
        _expectMismatch(intent, IntentField.DestinationCaller, _padded(bob.addr), _padded(relayer.addr));

        intent = _intent(alice.addr, wallet, USDC, "salt");
        intent.spec.hookData = hex"00";
        _expectMismatch(intent, IntentField.HookData, keccak256(hex"00"), keccak256(""));
    }

    function test_anIntentMayNameItsRelayer() public {
        BurnIntent memory intent = _intent(alice.addr, wallet, USDC, "salt");
        intent.spec.destinationCaller = _padded(relayer.addr);
        _instantWithdraw(intent, alice.key);
        vm.assertEq(usdc.balanceOf(wallet), USDC);
    }

    function test_nothingLeavesAtOnceWhilePaused() public {
        _pause();
        _expectRefusal(
            _intent(alice.addr, wallet, USDC, "salt"),
            alice.key,
            abi.encodeWithSelector(Pausable.EnforcedPause.selector)
        );
    }

    // The depositor alone: Alice is served, then tries to leave at once before the payment settles. It takes a relayer,
    // who knows what is unsettled.
    function test_attack_aDepositorCannotLeaveAtOnceAlone(address anyone) public {
        vm.assume(anyone != relayer.addr);
        BurnIntent memory intent = _intent(alice.addr, wallet, 100 * USDC, "salt");
        bytes memory signature = intent.intentSignature(alice.key);
        vm.expectRevert(abi.encodeWithSelector(Roles.OnlyRelayer.selector, anyone));
        vm.prank(anyone);
        gateway.instantWithdraw(intent, signature);
    }

    // The relayer alone: its key is stolen. Mallory cannot take Alice's money, nor turn an intent that Alice signed to
    // another address or another value.
    function test_attack_aStolenRelayerKeyTakesNothing() public {
        BurnIntent memory intent = _intent(alice.addr, mallory.addr, USDC, "salt");
        _expectRefusal(
            intent,
            relayer.key,
            abi.encodeWithSelector(
                InstantWithdrawals.IntentSignatureInvalid.selector, relayer.addr, alice.addr
            )
        );

        // As a delegate of Alice.
        intent.spec.sourceSigner = _padded(relayer.addr);
        _expectMismatch(intent, IntentField.SourceSigner, _padded(relayer.addr), _padded(alice.addr));

        // With what Alice signed, changed.
        intent = _intent(alice.addr, wallet, USDC, "salt");
        bytes memory signature = intent.intentSignature(alice.key);
        intent.spec.destinationRecipient = _padded(mallory.addr);
        vm.expectPartialRevert(InstantWithdrawals.IntentSignatureInvalid.selector);
        vm.prank(relayer.addr);
        gateway.instantWithdraw(intent, signature);

        intent.spec.destinationRecipient = _padded(wallet);
        intent.spec.value = 2 * USDC;
        vm.expectPartialRevert(InstantWithdrawals.IntentSignatureInvalid.selector);
        vm.prank(relayer.addr);
        gateway.instantWithdraw(intent, signature);
        vm.assertEq(_total(alice.addr), 100 * USDC);
    }

    function test_attack_anIntentPaysOnce() public {
        BurnIntent memory intent = _intent(alice.addr, wallet, USDC, "salt");
        _instantWithdraw(intent, alice.key);
        bytes memory used =
            abi.encodeWithSelector(InstantWithdrawals.IntentUsed.selector, Signer.transferSpecHash(intent.spec));
        _expectRefusal(intent, alice.key, used);

        // Signed again with a later end it is still the same transfer.
        intent.maxBlockHeight += 1_000;
        _expectRefusal(intent, alice.key, used);
        vm.assertEq(usdc.balanceOf(wallet), USDC);
    }

    function test_attack_aMalformedSignatureIsRefused() public {
        BurnIntent memory intent = _intent(alice.addr, wallet, USDC, "salt");
        bytes memory signature = intent.intentSignature(alice.key);
        bytes memory short = new bytes(64);
        for (uint256 i = 0; i < 64; ++i) {
            short[i] = signature[i];
        }
        vm.expectRevert(abi.encodeWithSelector(ECDSA.ECDSAInvalidSignatureLength.selector, 64));
        vm.prank(relayer.addr);
        gateway.instantWithdraw(intent, short);

        signature[64] = 0x01;
        vm.expectRevert(ECDSA.ECDSAInvalidSignature.selector);
        vm.prank(relayer.addr);
        gateway.instantWithdraw(intent, signature);
    }

    function _expectMismatch(BurnIntent memory intent, IntentField field, bytes32 signed, bytes32 expected) private {
        _expectRefusal(
            intent,
            alice.key,
            abi.encodeWithSelector(InstantWithdrawals.IntentMismatch.selector, field, signed, expected)
        );
    }

    function _expectRefusal(BurnIntent memory intent, uint256 key, bytes memory refusal) private {
        bytes memory signature = intent.intentSignature(key);
        vm.expectRevert(refusal);
        vm.prank(relayer.addr);
        gateway.instantWithdraw(intent, signature);
    }
}
